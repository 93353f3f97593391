// Command podnetwork connects the Pods of the node that it runs on, see package podnetwork.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/podnetwork"
)

// interval is how often Nodes are looked at. A lab has few of them.
const interval = 2 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "podnetwork:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctrl.SetLogger(klog.Background())
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("making the client: %w", err)
	}
	node := podnetwork.Node{Name: os.Getenv("NODE_NAME"), Root: "/host", Client: c}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := node.Connect(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Connecting Pods")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
