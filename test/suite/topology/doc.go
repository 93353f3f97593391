// Package topology proves that the templates of a release are valid for the webhooks of
// Cluster API, and that Cluster API's topology controller makes, changes, rebases and
// upgrades a cluster of the released ClusterClass without taking back what this provider
// writes.
package topology
