package conversion_test

import (
	"testing"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
)

func failToConvert() gomegatypes.GomegaMatcher {
	return MatchError(And(ContainSubstring("conversion webhook for infrastructure.cluster.x-k8s.io/"), ContainSubstring("connection refused")))
}

// testOutage: the webhook does not answer while v1beta2 is stored, which the manager reads.
func testOutage(r *rig) {
	ctx := r.t.Context()
	for _, name := range []string{"written", "applied", "reported"} {
		r.Expect(r.applyAs("git-old", older, name, cordon("rack"))).To(Succeed())
		r.request(name)
	}
	r.hook.stop()

	// The manager reads, watches and claims.
	watcher, err := client.NewWithWatch(r.env.Config, r.env.ClientOptions())
	r.Expect(err).NotTo(HaveOccurred())
	hosts := &infrav1.ElementalHostList{}
	r.Expect(r.client.List(ctx, hosts, client.InNamespace(r.namespace))).To(Succeed())
	r.Expect(hosts.Items).NotTo(BeEmpty())
	watch, err := watcher.Watch(ctx, &infrav1.ElementalHostList{}, &client.ListOptions{
		Namespace: r.namespace, Raw: &metav1.ListOptions{ResourceVersion: hosts.ResourceVersion},
	})
	r.Expect(err).NotTo(HaveOccurred())
	defer watch.Stop()
	r.Expect(claim.Reserve(ctx, r.client, r.old("plain"), cluster)).To(Succeed())
	var event apiwatch.Event
	r.Eventually(watch.ResultChan()).Should(Receive(&event))
	r.Expect(event.Type).To(Equal(apiwatch.Modified))
	r.Expect(event.Object.(*infrav1.ElementalHost).Spec.Claim.ClusterName).To(Equal(cluster))
	r.Expect(managers(r.old("plain"))).NotTo(BeEmpty())

	// It also writes what a client of v1beta3 has written, and the API server forgets who owns
	// which field, because it can't convert that.
	r.Expect(claim.Reserve(ctx, r.client, r.old("written"), cluster)).To(Succeed())
	r.Expect(managers(r.old("written"))).To(BeEmpty())
	r.report("reported")
	r.Expect(managers(r.old("reported"))).To(BeEmpty())

	// Clients of v1beta3 fail, and who applies a host that they have written.
	r.Expect(r.read(&ElementalHost{}, "plain")).To(failToConvert())
	r.Expect(r.client.Create(ctx, &ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "created"}})).To(failToConvert())
	r.Expect(r.applyAs("git-old", older, "applied", cordon("power"))).To(failToConvert())
	if !testing.Short() {
		// The API server waits three seconds for its cache of v1beta3.
		r.Expect(r.client.List(ctx, &ElementalHostList{}, client.InNamespace(r.namespace))).To(failToConvert())
	}
	// Programs that leave the version to the API server get v1beta3: kubectl, garbage collection,
	// the deletion of namespaces.
	r.Expect(r.preferred()).To(Equal(newer))

	r.hook.start()
	r.Expect(r.new("written").Spec.Reboots).To(HaveLen(2))
	r.Expect(r.applyAs("git-old", older, "applied", map[string]any{})).To(Succeed())
	r.Expect(r.old("applied").Spec.Cordon).To(BeNil())
	r.Expect(r.applyAs("git-old", older, "written", map[string]any{})).To(Succeed())
	r.Expect(r.old("written").Spec.Cordon).NotTo(BeNil(), "nobody owns it")
}

func (r *rig) preferred() string {
	r.t.Helper()
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(r.env.Config).ServerGroups()
	r.Expect(err).NotTo(HaveOccurred())
	for _, group := range groups.Groups {
		if group.Name == newerGroupVersion.Group {
			return group.PreferredVersion.Version
		}
	}
	return ""
}
