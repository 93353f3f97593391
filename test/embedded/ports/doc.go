// Package ports reserves TCP ports for programs that are told their port, and so can't ask the kernel for one: between
// the choice and the program's start anybody else could be given it.
//
// A reservation is a socket bound to the port with SO_REUSEADDR that never listens. The kernel then chooses the port
// for nobody, neither for a listener on port 0 nor for an outgoing connection, while a program that names it, and also
// sets SO_REUSEADDR as every Go program does, may listen on it (Linux, socket(7)).
package ports
