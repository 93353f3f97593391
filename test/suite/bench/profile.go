package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
)

// profileShare is the share of Options.Rest (1/profileShare) for a CPU profile.
const profileShare = 4

// profiled runs do during a CPU profile of the manager, then takes the other profiles, if Options.Profiles is set. A
// profile costs the manager a few percent. A missing profile is reported, but is no error.
func (g *rig) profiled(ctx context.Context, name string, m *embedded.Manager, do func() error) error {
	if g.options.Profiles == "" {
		return do()
	}
	if err := os.MkdirAll(g.options.Profiles, 0o755); err != nil {
		return fmt.Errorf("making the folder of profiles: %w", err)
	}
	take := func(kind, query string) {
		file := filepath.Join(g.options.Profiles, fmt.Sprintf("%s-%s-%s.pb.gz", g.scenario, name, kind))
		if err := download(ctx, m.Profiles+"/"+query, file); err != nil {
			g.progress.Say("There is no profile %s: %v", file, err)
		}
	}
	var taking sync.WaitGroup
	seconds := max(int((g.options.Rest / profileShare).Seconds()), 1)
	taking.Go(func() { take("cpu", fmt.Sprintf("profile?seconds=%d", seconds)) })
	err := do()
	taking.Wait()
	if err == nil {
		for _, kind := range []string{"heap", "goroutine", "allocs"} {
			take(kind, kind)
		}
	}
	return err
}

func download(ctx context.Context, url, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for a profile: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking for a profile: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading a profile: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for a profile: %s", response.Status)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	return nil
}
