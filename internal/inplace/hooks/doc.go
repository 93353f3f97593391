// Package hooks answers Cluster API's hooks for updates in place, on the manager's webhook
// server and in every replica.
//
// Everybody who reaches the port can call them, so they only read. CanUpdateMachine and
// CanUpdateMachineSet judge the requested change (package inplace). UpdateMachine begins
// nothing: it reports what the upgrade controller and the host have done for the marked
// objects.
package hooks
