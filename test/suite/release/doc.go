// Package release makes a whole release in two checkouts, publishes it to a registry, and installs
// from there what clusterctl makes of it.
package release
