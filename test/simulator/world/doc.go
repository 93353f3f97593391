// Package world puts together what a simulation takes: the management cluster of test/embedded with its real
// controllers, the virtual hosts of test/fleet with the real agent, and package workload, which makes them
// clusters. It needs neither root nor a container engine, and nothing but the loopback.
//
//	w, err := world.Start(ctx, world.Options{Hosts: 6, Progress: os.Stderr})
//	...
//	defer w.Close()
//	err = w.Fleet.PowerOn(ctx, 0)
//	err = w.Create(ctx, world.Cluster{Name: "demo", ControlPlanes: 3, Workers: 2})
package world
