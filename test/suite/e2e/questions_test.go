//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// metricsReader is a ServiceAccount that may read the manager's metrics.
	metricsReader = "metrics-reader"
	// questionsMetric counts the questions to hosts whether they reach the endpoint.
	questionsMetric = "elemental_agent_api_endpoint_questions_total"
)

// grantMetrics makes the ServiceAccount that questions uses, for the rest of the container.
func grantMetrics(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "--namespace", namespace, "create", "serviceaccount", metricsReader)
	kubectl(ctx, "create", "clusterrole", metricsReader, "--verb", "get", "--non-resource-url", "/metrics")
	kubectl(ctx, "create", "clusterrolebinding", metricsReader, "--clusterrole", metricsReader, "--serviceaccount", namespace+":"+metricsReader)
	DeferCleanup(func(ctx context.Context) {
		kubectl(ctx, "delete", "clusterrolebinding,clusterrole", metricsReader)
		kubectl(ctx, "--namespace", namespace, "delete", "serviceaccount", metricsReader)
	})
}

// questions returns how many questions the manager has asked since it started. The metrics are
// read on the management cluster's host, which reaches the manager's Pods.
func questions(ctx context.Context) int {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(management.Get(ctx, managerDeployment(ctx), deployment)).To(Succeed())
	pods := &corev1.PodList{}
	Expect(management.List(ctx, pods, client.InNamespace(deployment.Namespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels))).To(Succeed())
	token := kubectl(ctx, "--namespace", namespace, "create", "token", metricsReader)
	asked, found := 0, false
	for _, pod := range pods.Items {
		text := shell(ctx, hosts.Management(), "curl --silent --show-error --fail --insecure --max-time 30 --header 'Authorization: Bearer "+token+
			"' https://"+pod.Status.PodIP+":8443/metrics")
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(line, questionsMetric+" "); ok {
				count, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				Expect(err).NotTo(HaveOccurred())
				asked, found = asked+int(count), true
			}
		}
	}
	Expect(found).To(BeTrue(), "no Pod of the manager has the metric "+questionsMetric)
	return asked
}

// probes returns the last probe of the endpoint by each control plane.
func (w workload) probes(ctx context.Context) map[string]infrav1.EndpointProbe {
	GinkgoHelper()
	all := map[string]infrav1.EndpointProbe{}
	for _, host := range w.claimed(ctx) {
		if host.Spec.Claim.Role.IsControlPlane() && host.Status.Endpoint != nil && host.Status.Endpoint.Probe != nil {
			all[host.Name] = *host.Status.Endpoint.Probe
		}
	}
	return all
}

// expectNothingAsked checks that no host is asked as long as all of them reach the endpoint. On a
// busy machine a probe may fail; then it watches again.
func (w workload) expectNothingAsked(ctx context.Context) {
	GinkgoHelper()
	const tries = 5
	for range tries {
		w.expectProbed(ctx, w.ControlPlanes)
		before, asked := w.probes(ctx), questions(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(restTime):
		}
		now := questions(ctx)
		if unchanged, _ := Equal(before).Match(w.probes(ctx)); unchanged {
			Expect(now).To(Equal(asked), "questions at rest")
			fmt.Printf("  %d questions before and after %.0f s\n", now, restTime.Seconds())
			return
		}
		fmt.Println("  a probe failed meanwhile")
	}
	Fail("the endpoint was not reachable for long enough")
}
