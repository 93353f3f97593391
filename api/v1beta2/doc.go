// Package v1beta2 is the API of the elemental infrastructure provider: group
// infrastructure.cluster.x-k8s.io, made for Cluster API's contract v1beta2.
//
// Nothing here refers to a UID: `clusterctl move` and a restore from backup
// make new ones. What must survive them is in spec or metadata, because
// neither restores status.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
