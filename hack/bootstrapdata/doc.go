// Command bootstrapdata writes bootstrap data as Cluster API's kubeadm provider
// renders it, with the provider's own code, into the test data of the agent's
// parser:
//
//	cd hack/bootstrapdata && go run . ../../internal/agent/bootstrapdata/parser/testdata
//	go test ../../internal/agent/bootstrapdata/parser -update
//
// It is a module of its own, because rendering Ignition needs libraries that
// nothing else here needs.
package main
