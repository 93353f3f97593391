package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	enrolments = 50
	// maxEnrolmentWrites bounds the writes of one enrolment: the use of the token, the
	// host and its first status.
	maxEnrolmentWrites = 3
	// aftermath is longer than the delay of the host controller for a new host.
	aftermath = 12 * time.Second
)

// testEnrolment counts the writes of concurrent enrolments, with all reconcilers.
func (r *rig) testEnrolment(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	const namespace = "enrolments"
	r.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	registration := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}
	registration.Spec.Token.MaxUses = enrolments
	r.Create(registration)
	g.Eventually(func() *infrav1.LocalReference {
		r.Refresh(registration)
		return registration.Status.TokenSecretRef
	}).WithTimeout(soon).ShouldNot(BeNil())
	secret := &corev1.Secret{}
	g.Expect(r.Admin.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: registration.Status.TokenSecretRef.Name}, secret)).To(Succeed())
	config, err := enrolment.DecodeAgentConfig(secret.Data["config.yaml"])
	g.Expect(err).NotTo(HaveOccurred())
	before := r.settled(ctx, g)

	var group errgroup.Group
	for i := range enrolments {
		a, err := newAgent(fmt.Sprintf("box-%02d", i), r.url, r.bundle)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(a.api.Close)
		group.Go(func() error {
			_, err := a.api.Enrol(ctx, config.Token, protocol.EnrolRequest{
				Hello:       protocol.Hello{Protocol: protocol.Version, AgentVersion: "v0.1.0", BootID: a.name},
				Cleanliness: protocol.Cleanliness{Clean: true},
			})
			return err
		})
	}
	g.Expect(group.Wait()).To(Succeed())
	select {
	case <-time.After(aftermath):
	case <-ctx.Done():
	}
	cost := r.settled(ctx, g).Since(before).Only(ours)
	t.Logf("%d enrolments at once: %d writes: %s", enrolments, cost.Total(), cost)
	g.Expect(cost.Total()).To(BeNumerically("<=", maxEnrolmentWrites*enrolments+1), "and one for the registration, whose token is used up: %s", cost)
}
