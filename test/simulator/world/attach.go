package world

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Attach returns the World that another process runs, as far as an administrator of its management cluster sees it:
// there are no Management, Clusters and Fleet. checkout is the folder of this repository.
func Attach(kubeconfig, checkout string) (*World, error) {
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
	return &World{Admin: admin, checkout: checkout}, nil
}
