// Package preflight reads what kubeadm and the kubelet need of the operating system: swap,
// kernel settings, control groups, ports, the socket of the container runtime, name servers
// and free space. It reads files and runs no program, and it decides nothing: what is in the
// way of a Machine is for the manager to say.
package preflight
