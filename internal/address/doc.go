// Package address selects the address of a host that becomes the control plane
// endpoint, and checks whether a certificate covers it. The ElementalCluster
// controller and package failover call it. It is pure.
package address
