// Package ports reserves TCP ports for programs that need a fixed port. Without a reservation another program could get
// the port between its choice and the program's start.
//
// A reservation is a socket that is bound to the port with SO_REUSEADDR and never listens. The kernel then never assigns
// the port, neither to a listener on port 0 nor to an outgoing connection. A program that names the port and also sets
// SO_REUSEADDR, as every Go program does, may still listen on it (Linux, socket(7)).
package ports
