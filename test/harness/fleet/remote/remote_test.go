package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
)

// asFleet has this program be the fleet's process.
const asFleet = "BE_A_FLEET"

func TestMain(m *testing.M) {
	if os.Getenv(asFleet) != "" {
		if err := remote.Serve(context.Background(), os.Stdin, os.Stdout, slog.New(slog.DiscardHandler), nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// nowhere is where no manager answers.
func nowhere() fleet.Settings {
	const bundle = `-----BEGIN CERTIFICATE-----
MIIBNDCB26ADAgECAgEBMAoGCCqGSM49BAMCMA8xDTALBgNVBAMTBHRlc3QwIBcN
-----END CERTIFICATE-----
`
	return fleet.Settings{Count: 3, Servers: []string{"https://127.0.0.1:1"}, TrustBundle: bundle, AgentRestart: time.Hour}
}

func start(t *testing.T, settings fleet.Settings) (*remote.Fleet, error) {
	t.Helper()
	t.Setenv(asFleet, "yes")
	return remote.Start(t.Context(), os.Args[:1], settings, t.Output())
}

func TestFleetOfAnotherProcess(t *testing.T) {
	g := NewWithT(t)
	f, err := start(t, nowhere())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.PID()).NotTo(Equal(os.Getpid()))
	g.Expect(f.Do(t.Context(), remote.PowerOn, 0, "host-1", "host-3")).To(Succeed())
	// Not the certificate that it seems: agents can't start.
	g.Eventually(func() map[string]int {
		figures, err := f.Figures(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		return figures.Hosts
	}, time.Minute, 10*time.Millisecond).Should(Equal(map[string]int{"Off": 1, "Disconnected": 2}))
	status, err := f.Status(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status).To(HaveLen(3))
	g.Expect(status[2].Name + status[2].State).To(Equal("host-3Disconnected"))
	for _, action := range []remote.Action{remote.Crash, remote.Cut, remote.Join, remote.Reboot, remote.PowerOff} {
		g.Expect(f.Do(t.Context(), action, 0)).To(Succeed())
	}
	status, err = f.Status(t.Context(), "host-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status[0].State).To(Equal("Off"))
	g.Expect(status[0].Done.Boots).To(Equal(2))

	g.Expect(f.SetFaults(t.Context(), fleet.Faults{Loss: 0.5})).To(Succeed())
	g.Expect(f.SetFaults(t.Context(), fleet.Faults{Loss: 2})).To(MatchError(ContainSubstring("share of loss")))
	g.Expect(f.Do(t.Context(), "Explode", 0)).To(MatchError(ContainSubstring(`no action "Explode"`)))
	g.Expect(f.Do(t.Context(), remote.Reboot, 0, "nobody")).To(MatchError(ContainSubstring(`no host "nobody"`)))

	// What takes long holds up nobody.
	ctx, cancel := context.WithCancel(t.Context())
	slow := make(chan error, 1)
	go func() { slow <- f.Do(ctx, remote.PowerOn, time.Hour) }()
	_, err = f.Figures(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	cancel()
	g.Expect(<-slow).To(MatchError(context.Canceled))
	g.Expect(f.Close()).To(Succeed())
	_, err = f.Figures(t.Context())
	g.Expect(err).To(HaveOccurred())
}

func TestFleetThatCannotBe(t *testing.T) {
	g := NewWithT(t)
	_, err := start(t, fleet.Settings{})
	g.Expect(err).To(MatchError(ContainSubstring("have to know a server")))
}

func TestWhatIsNoRequest(t *testing.T) {
	g := NewWithT(t)
	for _, in := range []string{"{", "{}"} {
		var out bytes.Buffer
		g.Expect(remote.Serve(t.Context(), strings.NewReader(in+"\n"), &out, nil, nil)).NotTo(Succeed())
	}
	g.Expect(remote.Serve(t.Context(), strings.NewReader(""), nil, nil, nil)).To(Succeed())
}
