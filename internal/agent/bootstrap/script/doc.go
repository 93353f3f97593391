// Package script runs a shell script exactly once, also when the process that
// asked for it is killed meanwhile.
//
// The script is run by a process of its own, the runner: the agent's binary
// started again with a hidden sub-command that calls Main. The runner is in its
// own session, so that nothing reaches it that reaches the agent, and works on
// a directory:
//
//	script       what is run, 0700
//	spec.json    environment and working directory
//	lock         held by flock for as long as the script runs
//	started      made durable before the script starts
//	output       the beginning and the end of its output
//	result.json  made durable after the script ended, before lock is released
//
// Run reads a started script from these files. The lock is handed over to the
// runner as an open file, so there is no instant in which nobody holds it.
// A script that was started, is not running and has no result was cut off by a
// power cut or a kill of the runner itself: ErrInterrupted, and it is never run
// again.
package script
