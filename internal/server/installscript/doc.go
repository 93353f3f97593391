// Package installscript renders the shell script that installs the agent on a host. The
// manager serves it to callers without a key, so it has nothing but digests of agents in it.
package installscript
