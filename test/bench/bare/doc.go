// Package bare does what the manager and its hosts do at the least, without them: connections that wait, and writes to an
// API server. Figures of the manager are compared with its figures, as absolute ones depend on the machine.
package bare
