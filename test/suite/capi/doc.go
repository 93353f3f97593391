// Package capi runs the end-to-end specs of Cluster API itself, of the module sigs.k8s.io/cluster-api/test, with this
// provider on the hosts of a lab. The specs are unchanged. What they ask of an infrastructure provider is here: the
// flavors of its templates, and hosts in the namespace of each spec.
package capi
