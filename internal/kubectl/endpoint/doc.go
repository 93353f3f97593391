// Package endpoint shows a person who has the control plane endpoint of a cluster, and plans a
// move of it. Package failover decides where it can move, for the manager and here.
package endpoint
