//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// A failed spec leaves the logs of the lab in a folder. CI keeps only what is printed, so the state of all clusters and
// hosts is printed too.
var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() || hosts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	printState(ctx)
	folder := os.Getenv("E2E_ARTIFACTS")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "out", "e2e")
	}
	if err := hosts.Logs(ctx, folder); err != nil {
		fmt.Println("Collecting logs:", err)
		return
	}
	fmt.Println("Logs are in", folder)
})

// printState prints a line for each cluster, host and machine of the management cluster.
func printState(ctx context.Context) {
	if management == nil {
		return
	}
	fmt.Println("State at", time.Now().UTC().Format(time.TimeOnly))
	clusters := &infrav1.ElementalClusterList{}
	if err := management.List(ctx, clusters); err != nil {
		fmt.Println("Listing ElementalClusters:", err)
		return
	}
	for _, c := range clusters.Items {
		fmt.Println(" ElementalCluster", c.Name, encoded(c.Spec), encoded(c.Status.Endpoint), conditions(c.Status.Conditions))
	}
	list := &infrav1.ElementalHostList{}
	if err := management.List(ctx, list); err != nil {
		fmt.Println("Listing ElementalHosts:", err)
		return
	}
	for _, h := range list.Items {
		fmt.Println(" ElementalHost", h.Name, encoded(h.Spec.Claim), encoded(h.Status.Endpoint), encoded(h.Status.Tunnel), conditions(h.Status.Conditions))
	}
	machines := &clusterv1.MachineList{}
	if err := management.List(ctx, machines); err != nil {
		fmt.Println("Listing Machines:", err)
		return
	}
	for _, m := range machines.Items {
		fmt.Println(" Machine", m.Name, m.Status.Phase, conditions(m.Status.Conditions))
	}
}

// conditions returns a line with all conditions.
func conditions(all []metav1.Condition) string {
	var text string
	for _, c := range all {
		text += fmt.Sprintf(" %s=%s(%s since %s: %.200s)", c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC().Format(time.TimeOnly), c.Message)
	}
	return text
}

func encoded(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
