//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

// renewalTimeout bounds a renewal. It is far above the usual time, because a busy machine is not a failure.
const renewalTimeout = 12 * time.Minute

var _ = Describe("Certificates of a cluster with one control-plane host", Ordered, Label("certificates"), func() {
	w := workload{lab.Cluster{Name: "renewed", ControlPlanes: 1}}

	It("are watched", func(ctx context.Context) {
		step("renewed: 1+0 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 1)
		})
		Eventually(func(g Gomega) {
			g.Expect(meta.IsStatusConditionTrue(w.infra(ctx).Status.Conditions, infrav1.CertificatesValidCondition)).To(BeTrue())
		}).WithTimeout(2 * time.Minute).Should(Succeed())
		Expect(w.infra(ctx).Status.KubeconfigNotAfter.Time).To(BeTemporally(">", time.Now().AddDate(0, 11, 0)))
	}, SpecTimeout(20*time.Minute))

	It("are renewed in place on request", func(ctx context.Context) {
		host, nodes := w.controlPlaneHost(ctx), w.nodes(ctx)
		before := w.servedUntil(ctx)
		w.remember(ctx, "kept")
		calls := w.call(ctx, time.Second)
		step("renewed: certificates renewed", func() {
			kubectl(ctx, "--namespace", w.namespace(), "patch", "elementalhost", host.Name, "--type", "merge",
				"--patch", `{"spec":{"certificateRenewal":{"id":"2026-11-22-a"}}}`)
			Eventually(func(g Gomega) {
				host = w.controlPlaneHost(ctx)
				op := host.Operation(infrav1.OperationCertificateRenewal, "2026-11-22-a")
				g.Expect(op).NotTo(BeNil())
				g.Expect(op.State).To(Equal(infrav1.OperationSucceeded), "%+v", op)
			}).WithTimeout(renewalTimeout).Should(Succeed())
		})
		calls.stop()
		fmt.Printf("  the API was away for %.1f s\n", calls.totalOutage().Seconds())

		after := w.servedUntil(ctx)
		Expect(after).To(BeTemporally(">", before), "the API server serves its new certificate")
		Eventually(func(g Gomega) {
			machine := &clusterv1.Machine{}
			g.Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: host.Spec.Claim.MachineName}, machine)).To(Succeed())
			g.Expect(machine.Annotations).To(HaveKeyWithValue(clusterv1.MachineCertificatesExpiryDateAnnotation, after.UTC().Format(time.RFC3339)))
			g.Expect(meta.IsStatusConditionTrue(w.infra(ctx).Status.Conditions, infrav1.CertificatesValidCondition)).To(BeTrue())
		}).WithTimeout(2 * time.Minute).Should(Succeed())
		Expect(w.client(ctx).Get(ctx, client.ObjectKey{Namespace: namespace, Name: "kept"}, &corev1.ConfigMap{})).To(Succeed())
		Expect(w.nodes(ctx)).To(Equal(nodes))
		w.expectRunning(ctx, 1)
		kept := shell(ctx, boxOf(&host), "ls /var/lib/elemental/agent/checkpoints 2>/dev/null || true")
		Expect(kept).To(BeEmpty(), "no copy of keys is left")
	}, SpecTimeout(renewalTimeout+5*time.Minute))

	It("are removed with the cluster", func(ctx context.Context) {
		step("renewed: cluster deleted", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(20*time.Minute))
})

// servedUntil returns when the certificate ends that the API server of the endpoint has in use.
func (w workload) servedUntil(ctx context.Context) time.Time {
	GinkgoHelper()
	endpoint := w.infra(ctx).Spec.ControlPlaneEndpoint
	// The certificate is only looked at.
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))))
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
}
