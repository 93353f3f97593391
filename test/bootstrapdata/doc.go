// Command bootstrapdata writes bootstrap data as Cluster API's kubeadm provider
// renders it, with the provider's own code, into the test data of the agent's
// parser:
//
//	cd test/bootstrapdata && go run . ../../internal/agent/bootstrap/testdata
//	go test ../../internal/agent/bootstrap -update
//
// It is a module of its own, because rendering Ignition needs libraries that
// nothing else here needs.
package main
