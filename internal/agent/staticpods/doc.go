// Package staticpods reads the manifests of the static Pods that kubeadm writes for a
// control plane.
package staticpods
