// Package bootstrap runs Bootstrap operations: it fetches the bootstrap data from the
// manager, checks all of it, installs a bundle on a host without the programs of
// Kubernetes, executes each part of the data once, and sets the providerID of the Node.
//
// An adoption is a Bootstrap of a host that runs its Node already: there is no data. An Adopter
// checks the Node, and nothing but its providerID is changed.
//
// Runner is the operation. It leaves the data itself to an Executor; LocalExecutor
// executes it on this host with packages bootstrapdata and apply. Virtual hosts have
// an Executor of their own.
package bootstrap
