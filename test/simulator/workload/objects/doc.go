// Package objects has the objects that kubeadm and a kubelet make, as far as somebody looks at them: Cluster
// API's kubeadm control-plane provider, its core, this provider's agent, people. It is pure.
package objects
