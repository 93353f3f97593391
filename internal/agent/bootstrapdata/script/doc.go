// Package script runs a script exactly once, even if the agent is killed meanwhile.
// Package apply uses it for the scripts of bootstrap data.
//
// The script is run by a process of its own, the runner: the agent's binary
// started again with a hidden sub-command that calls Main. The runner is in its
// own session, so that signals to the agent do not reach it. It works on a
// directory:
//
//	script       the script, 0700
//	spec.json    environment and working directory
//	lock         held by flock for as long as the script runs
//	started      made durable before the script starts
//	output       the beginning and the end of its output
//	result.json  made durable after the script ended, before lock is released
//
// Run reads the state of a script from these files. The agent passes the lock to
// the runner as an open file, so the lock is always held. A script that was started,
// is not running and has no result was interrupted by a power cut or a kill of the
// runner: Run returns ErrInterrupted and never runs it again.
package script
