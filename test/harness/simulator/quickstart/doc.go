// Package quickstart is the demonstration of make quickstart: a management cluster of plain processes, six virtual
// hosts that run the real agent, and a cluster on them whose endpoint moves when its host dies.
//
// A background process runs the simulation: the management cluster, the hosts and everything they serve (serve.go). It
// runs until it is stopped. The foreground process starts it, acts as a user through the API of the management cluster,
// and shows the effects (demonstration.go). The two processes share a folder that only its user may enter: a lock shows
// whether a simulation runs, a socket accepts commands (control.go). The folder has all files of the simulation, so
// another folder is another, independent simulation.
package quickstart
