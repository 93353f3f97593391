// Package cluster reconciles ElementalClusters. This package fetches the objects, holds
// the finalizer, runs the phases, and writes status, conditions and requeues. The phases
// are packages of their own: endpoint (a host's address as control plane endpoint), vip (a
// virtual IP address), tunnel (a name that leads through tunnels) and failuredomain. They share package scope.
//
// An endpoint that the user gave, here or on the Cluster, is never changed.
package cluster
