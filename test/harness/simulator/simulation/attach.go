package simulation

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Attach returns a Simulation for one that another process runs. Only Admin is set: Management, Clusters and Fleet
// are nil. checkout is the root folder of this repository, and proxy the URL of embedded.Cluster's Proxy there.
func Attach(kubeconfig, checkout, proxy string) (*Simulation, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &Simulation{Admin: admin, checkout: checkout, namesProxy: proxy}, nil
}
