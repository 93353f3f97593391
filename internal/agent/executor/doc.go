// Package executor executes bootstrap data for the run loop: it joins the
// parser of package bootstrap, package apply, and the agent's own records.
package executor
