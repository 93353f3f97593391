// Package lab runs a management cluster and hosts on one machine. It uses Go modules and Debian
// packages only; no image registry is needed. A host is a container with systemd (package engine)
// that runs the real agent, kubeadm and containerd, and really reboots. The management cluster is
// one such host. Cluster API and this provider are installed in it with the clusterctl commands
// that users run.
package lab
