// Package kubeadm runs kubeadm so that it survives the agent. kubeadm changes the control
// plane in steps that must not be cut short, and two of it must never run at a time: an
// agent that starts again finds the one that its predecessor started, and waits for it.
package kubeadm
