// Package lab runs a management cluster and hosts on one machine, from Go modules and Debian packages alone: no image
// registry is needed. A host is a container with systemd (package engine), so that the agent, kubeadm, containerd and a
// reboot are the real ones. The management cluster is one such host; Cluster API and this provider get into it by the
// same clusterctl commands that a user types.
package lab
