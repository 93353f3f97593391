// Package process runs programs that must not outlive their parent: each has a process group of its own, so that a
// terminal's interrupt does not reach it before its parent stops it in order, and the kernel kills it when the parent
// dies (PR_SET_PDEATHSIG, Linux). What it writes goes to a file, whose end is part of the error when it ends unasked.
package process
