// Package v1beta2 is the API of the elemental infrastructure provider: group
// infrastructure.cluster.x-k8s.io, for Cluster API's contract v1beta2.
//
// No field refers to a UID, because `clusterctl move` and a restore from a backup change
// UIDs. Neither restores status. Therefore spec or metadata contains all state that must
// survive them.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
