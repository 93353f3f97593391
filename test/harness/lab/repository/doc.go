// Package repository writes what clusterctl installs Cluster API from where the Internet can't be
// reached: a folder with the providers of Cluster API's Go module and the lab's stand-in for
// cert-manager, and the entries of clusterctl.yaml that lead there.
package repository
