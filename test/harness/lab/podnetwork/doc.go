// Package podnetwork is the network plugin of lab hosts: a bridge for the Pods of a host, and
// routes to the Pods of the others. It is for hosts in one network whose routes nobody else
// manages, and has no network policies: for the lab only.
//
// The hosts of a lab have the bridge and the routes before they are nodes. Manifests brings both to
// nodes that have neither, as network plugins do.
package podnetwork
