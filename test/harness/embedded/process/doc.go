// Package process runs programs that must not outlive their parent. Each has a process group of its own, so that the
// parent stops it, not a terminal's interrupt, and the kernel kills it when the parent dies (PR_SET_PDEATHSIG, Linux).
// Its output goes to a log file. If it ends unexpectedly, the error has the end of the log.
package process
