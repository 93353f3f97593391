// Package quickstart is the demonstration of make quickstart: a management cluster of plain processes, six virtual
// hosts that run the real agent, and a cluster on them whose endpoint moves when its host dies.
//
// A process in the background is the world: it runs the management cluster, the hosts and what they serve, and lives
// until it is told to end (serve.go). A process in the foreground starts it, does what a user does, through the API of
// the management cluster alone, and shows what comes of it (story.go). They meet in a folder that only its user may
// enter: its lock says whether there is a world, a socket in it takes orders (control.go). All traces are in the
// folder, so whoever has another folder has another world.
package quickstart
