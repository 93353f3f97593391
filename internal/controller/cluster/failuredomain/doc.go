// Package failuredomain determines the failure domains of a cluster from the labels of
// its hosts (contract InfraCluster, status.failureDomains), and which changes of hosts
// may alter them. The ElementalCluster reconciler publishes the result. The package
// writes nothing.
package failuredomain
