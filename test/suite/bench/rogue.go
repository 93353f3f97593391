package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/process"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/conditions"
)

const (
	// strangers is the number of keys without a token.
	strangers = 1000
	// rogueNamespace is that of the enrolled rogue, strangerNamespace the one that strangers claim to come from.
	rogueNamespace, strangerNamespace = "rogue", "strangers"
	// Targets for what one enrolled host and all strangers can write, in bytes: in the first minute and in each later one.
	rogueFirst, rogueLater         = 2 << 20, 256 << 10
	strangersFirst, strangersLater = 16 << 20, 12 << 20
	// rogueRatio is the target for the 99th percentile of a new plan beside hostile hosts.
	rogueRatio = 2.0
	// lowest is the lowest priority of a process.
	lowest = 19
	// rogueStop is how long the hostile program may take to end.
	rogueStop = time.Minute
)

// measureRogue measures what hostile hosts can write, and how fast honest hosts get changed plans meanwhile.
func measureRogue(ctx context.Context, g *rig) error {
	all, stop, err := gatherProbes(ctx, g)
	if err != nil {
		return err
	}
	defer stop()
	g.progress.Say("Changing plans without hostile hosts")
	var without []time.Duration
	for round := range planRounds {
		took, err := changePlans(ctx, g, all, fmt.Sprintf("without-%d", round))
		if err != nil {
			return err
		}
		without = append(without, took...)
	}
	probed := make([]string, 0, len(all))
	for _, p := range all {
		probed = append(probed, p.name)
	}
	v, err := conditions.Record(ctx, g.admin, namespace, probed...)
	if err != nil {
		return err
	}
	defer v.Cancel()
	one, err := startHostile(ctx, g, rogueNamespace, 0)
	if err != nil {
		return err
	}
	defer one.close()
	many, err := startHostile(ctx, g, strangerNamespace, strangers)
	if err != nil {
		return err
	}
	defer many.close()
	with, early, err := attack(ctx, g, all, one, many)
	if err != nil {
		return err
	}
	for _, h := range []*hostile{one, many} {
		if err := h.stop(); err != nil {
			return err
		}
	}
	if err := v.Stop(); err != nil {
		return err
	}
	for _, change := range v.Changes[:min(len(v.Changes), 10)] {
		g.progress.Say("%s", change)
	}
	showRogue(g, one, many, without, with, early, len(v.Changes))
	return nil
}

// attack changes plans of honest hosts beside hostile ones. It returns how long each change took, and those that began in
// the first minute.
func attack(ctx context.Context, g *rig, all []*probe, hostiles ...*hostile) (with, early []time.Duration, err error) {
	g.progress.Say("Changing plans beside hostile hosts for %s", g.options.Rest)
	err = g.profiled(ctx, "attack", g.cluster.Managers()[0], func() error {
		for start, round := time.Now(), 0; time.Since(start) < g.options.Rest; round++ {
			began := time.Since(start)
			took, err := changePlans(ctx, g, all, fmt.Sprintf("with-%d", round))
			if err != nil {
				return err
			}
			with = append(with, took...)
			if began < time.Minute {
				early = append(early, took...)
			}
			for _, h := range hostiles {
				if err := h.process.Err(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return with, early, err
}

// showRogue adds the figures of measureRogue.
func showRogue(g *rig, one, many *hostile, without, with, early []time.Duration, changes int) {
	rate := func(figure string, bytes, limit int) {
		g.row(table.Row{Figure: figure, Value: table.KiB(float64(bytes)), Target: "below " + table.KiB(float64(limit)), Missed: bytes >= limit})
	}
	first, later := one.meter.Rates()
	rate("One enrolled host writes in its first minute", first, rogueFirst)
	rate("One enrolled host writes in a later minute, at most", later, rogueLater)
	first, later = many.meter.Rates()
	rate(table.Count(strangers)+" strangers write in their first minute", first, strangersFirst)
	rate(table.Count(strangers)+" strangers write in a later minute, at most", later, strangersLater)
	beside := func(figure string, with []time.Duration, q float64, target string) {
		before, after := measure.Quantile(without, q).Seconds(), measure.Quantile(with, q).Seconds()
		g.row(table.Row{
			Figure: "Change to agent beside them, " + figure, Value: table.Duration(measure.Quantile(with, q)), Bare: table.Duration(measure.Quantile(without, q)),
			Ratio: table.Ratio(after, before), Target: target, Missed: target != "" && after > rogueRatio*before,
		})
	}
	const median, high = 0.5, 0.99
	beside("median", with, median, "")
	beside("99th percentile", with, high, fmt.Sprintf("%.1fx", rogueRatio))
	beside("99th percentile of rounds that began in the first minute, in which the strangers enrol", early, high, "")
	g.row(table.Row{Figure: "Conditions of honest hosts that changed", Value: table.Count(changes), Target: "0", Missed: changes > 0})
	g.note("%s hosts wait for a plan while two programs attack for %s, which know the OpenAPI document only (test/suite/threats/rogue). One has a token and is approved. The other has "+
		"%s keys without a token, each with an address of its own, that claim to have been enrolled in a namespace that re-adopts hosts: %s of them become pending hosts. All report as much as their "+
		"status can hold as soon as the manager takes it, change conditions with each report, and go and come back. Bytes are those of all versions of their ElementalHosts and Events, in JSON. "+
		"The largest host of the first is stored in %s, that of the strangers in %s; they caused %s and %s versions of Events.",
		table.Count(g.options.Hosts), g.options.Rest, table.Count(strangers), table.Count(many.meter.Objects("ElementalHost")),
		table.KiB(float64(one.meter.Largest("ElementalHost"))), table.KiB(float64(many.meter.Largest("ElementalHost"))), table.Count(one.meter.Versions("Event")), table.Count(many.meter.Versions("Event")))
	g.note("Plans are changed as in the section on plans, %s times without the attack (Bare) and %s times beside it. The programs run on the same two cores at the lowest priority, "+
		"because attackers have machines of their own. Requests of the first were answered %s, those of the strangers %s.",
		table.Count(len(without)), table.Count(len(with)), one.answers, many.answers)
}

// hostile is a running program of test/suite/threats/rogue.
type hostile struct {
	process *process.Process
	meter   *measure.Meter
	log     string
	// answers is what its requests were answered, once it was stopped.
	answers string
}

// startHostile starts a flood in a namespace of its own: of one enrolled host, or of many strangers.
func startHostile(ctx context.Context, g *rig, in string, many int) (*hostile, error) {
	if err := g.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}}); err != nil {
		return nil, fmt.Errorf("creating namespace %s: %w", in, err)
	}
	token, err := g.register(ctx, in)
	if err != nil {
		return nil, err
	}
	program, err := buildRogue(ctx, g)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(map[string]any{
		"server": g.cluster.AgentURL, "trustBundle": g.cluster.CABundle, "token": token, "strangers": many, "namespace": in,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding an assignment: %w", err)
	}
	assignment := filepath.Join(g.cluster.Folder, in+".json")
	if err := os.WriteFile(assignment, raw, 0o600); err != nil {
		return nil, fmt.Errorf("writing an assignment: %w", err)
	}
	h := &hostile{log: filepath.Join(g.cluster.Folder, "logs", in+".log")}
	if h.meter, err = measure.NewMeter(
		ctx, g.cluster.Config, "/apis/"+infrav1.GroupVersion.String()+"/namespaces/"+in+"/elementalhosts", "/apis/events.k8s.io/v1/namespaces/"+in+"/events",
	); err != nil {
		return nil, err
	}
	h.process, err = process.Start(process.Spec{Name: in, Path: program, Args: []string{"flood", assignment}, Dir: g.cluster.Folder, Log: h.log})
	if err != nil {
		h.meter.Cancel()
		return nil, err
	}
	if err := syscall.Setpriority(syscall.PRIO_PGRP, h.process.PID(), lowest); err != nil {
		h.close()
		return nil, fmt.Errorf("lowering the priority of the hostile program: %w", err)
	}
	return h, nil
}

// buildRogue builds the hostile program into the cluster's folder.
func buildRogue(ctx context.Context, g *rig) (string, error) {
	file := filepath.Join(g.cluster.Folder, "rogue")
	_, err := shell.Command{
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-o", file, "./test/suite/threats/rogue"}, Dir: g.options.Checkout, Env: []string{"CGO_ENABLED=0"},
	}.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("building the hostile program: %w", err)
	}
	return file, nil
}

// close ends the program and the counting.
func (h *hostile) close() {
	h.meter.Cancel()
	h.process.Kill()
}

// stop ends the counting and the program, and reads what it was answered.
func (h *hostile) stop() error {
	if err := h.meter.Stop(); err != nil {
		return err
	}
	h.process.Stop(rogueStop)
	raw, err := os.ReadFile(h.log)
	if err != nil {
		return fmt.Errorf("reading the answers to the hostile program: %w", err)
	}
	var said struct{ Answers map[string]int }
	if err := json.Unmarshal(raw, &said); err != nil {
		return fmt.Errorf("reading the answers to the hostile program: %w", err)
	}
	h.answers = listAnswers(said.Answers)
	return nil
}

// listAnswers lists answers and how many there were.
func listAnswers(answers map[string]int) string {
	var out []string
	for answer, count := range answers {
		out = append(out, fmt.Sprintf("%s: %s", answer, table.Count(count)))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
