// Package simulation assembles a complete simulation: a management cluster with real controllers
// (test/harness/embedded), virtual hosts with the real agent (test/harness/fleet), and package workload, which turns
// the hosts into workload clusters. It needs no root, no container engine and no network except loopback.
//
//	s, err := simulation.Start(ctx, simulation.Options{Hosts: 6, Progress: os.Stderr})
//	...
//	defer s.Close()
//	err = s.Fleet.PowerOn(ctx, 0)
//	err = s.Create(ctx, simulation.Cluster{Name: "demo", ControlPlanes: 3, Workers: 2})
package simulation
