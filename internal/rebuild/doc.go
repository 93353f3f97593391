// Package rebuild makes the configuration by which kubeadm sets up a control-plane host again that
// has lost its files.
//
// Cluster API's bootstrap provider makes configurations for kubeadm init only for the first Machine
// of a cluster, and for all others those for a join, which needs an API server. So the
// configuration is made here, from the kubeadmConfigSpec of the KubeadmControlPlane, with the
// provider's own types.
package rebuild
