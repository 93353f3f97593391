// Package kubeadm reads out of bootstrap data what kubeadm would be asked for: the agent's own parser for
// the data, and those fields of kubeadm's configuration (v1beta3, v1beta4) that a simulated node depends on.
// It is pure; nothing is executed.
package kubeadm
