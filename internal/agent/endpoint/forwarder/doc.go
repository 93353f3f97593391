// Package forwarder runs package forward as a process of its own, "elemental-agent
// endpoint", and starts, asks and ends that process for the agent.
//
// The kubelet's connections go through the process, so it outlives the agent: it depends
// on a document in the state directory, and neither on the agent nor on a manager. Main is
// the process, Manager the agent's side. They meet in three files of the state directory:
//
//   - endpoint-local.json says what to forward (Config). Without it the process ends.
//   - endpoint.lock is locked as long as there is such a process.
//   - endpoint.sock, which only root can connect to, takes the agent's requests.
//
// A process of a newer program takes over: the running one hands it the listening sockets
// and the lock, and ends when its last connection has ended. Nothing is refused meanwhile.
// If the newer one ends, its predecessors end with it. So whoever gets the lock knows that
// nobody else is there.
package forwarder
