// Package kubeadm reads the kubeadm command and its configuration (v1beta3, v1beta4) out of
// bootstrap data, as far as a simulated node depends on them. It uses the agent's own parser and
// executes nothing.
package kubeadm
