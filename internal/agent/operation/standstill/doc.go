// Package standstill ends the control plane of this host so that no reboot starts it, and starts
// it again.
//
// The manifests of its static Pods leave the kubelet's folder, and come back from a checkpoint.
package standstill
