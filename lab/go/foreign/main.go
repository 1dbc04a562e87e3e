// What other tools make of our objects, by their own code: each subcommand reads standard input and writes JSON.
//
//	targets     a Prometheus configuration; the targets of its eureka_sd, after relabelling
//	kstatus     a list of objects; what kstatus, and so Flux, says of each
//	argo-health {"script": ..., "objects": [...]}; what a health check for Argo CD says of each
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	_ "github.com/prometheus/prometheus/discovery/eureka"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

const patience = 30 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	commands := map[string]func([]byte) (any, error){"targets": targets, "kstatus": kstatus, "argo-health": argoHealth}
	if len(os.Args) != 2 || commands[os.Args[1]] == nil {
		return fmt.Errorf("usage: foreign-readers targets|kstatus|argo-health")
	}
	given, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	found, err := commands[os.Args[1]](given)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func targets(given []byte) (any, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	loaded, err := config.Load(string(given), logger)
	if err != nil {
		return nil, err
	}
	jobs, err := loaded.GetScrapeConfigs()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := []labels.Labels{}
	for _, job := range jobs {
		for _, mechanism := range job.ServiceDiscoveryConfigs {
			groups, err := discover(ctx, mechanism, logger)
			if err != nil {
				return nil, err
			}
			for _, group := range groups {
				for _, target := range group.Targets {
					builder := labels.NewBuilder(labels.EmptyLabels())
					for name, value := range target {
						builder.Set(string(name), string(value))
					}
					builder.Set("__metrics_path__", job.MetricsPath)
					builder.Set("__scheme__", job.Scheme)
					if relabel.ProcessBuilder(builder, job.RelabelConfigs...) {
						found = append(found, builder.Labels())
					}
				}
			}
		}
	}
	return found, nil
}

func discover(ctx context.Context, mechanism discovery.Config, logger *slog.Logger) ([]*targetgroup.Group, error) {
	registry := prometheus.NewRegistry()
	metrics := mechanism.NewDiscovererMetrics(registry, discovery.NewRefreshMetrics(registry))
	discoverer, err := mechanism.NewDiscoverer(discovery.DiscovererOptions{Logger: logger, Metrics: metrics})
	if err != nil {
		return nil, err
	}
	updates := make(chan []*targetgroup.Group)
	go discoverer.Run(ctx, updates)
	select {
	case groups := <-updates:
		return groups, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no target was found within %s", patience)
	}
}

func kstatus(given []byte) (any, error) {
	var objects []json.RawMessage
	if err := json.Unmarshal(given, &objects); err != nil {
		return nil, err
	}
	found := []map[string]string{}
	for _, raw := range objects {
		// As the library's callers do: integers are int64.
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		result, err := status.Compute(object)
		if err != nil {
			return nil, err
		}
		found = append(found, map[string]string{"status": string(result.Status), "message": result.Message})
	}
	return found, nil
}

func argoHealth(given []byte) (any, error) {
	var asked struct {
		Script  string
		Objects []map[string]any
	}
	if err := json.NewDecoder(bytes.NewReader(given)).Decode(&asked); err != nil {
		return nil, err
	}
	found := []map[string]string{}
	for _, object := range asked.Objects {
		said, err := health(asked.Script, object)
		if err != nil {
			return nil, err
		}
		found = append(found, said)
	}
	return found, nil
}

// health runs a script as Argo CD does where a customization does not ask for more: without the libraries string,
// math and io, within a second.
func health(script string, object map[string]any) (map[string]string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(ctx)
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		opened := lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}
		if err := state.CallByParam(opened, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	state.SetGlobal("obj", asLua(state, object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returned %s, not a table", state.Get(-1).Type())
	}
	said := map[string]string{}
	table.ForEach(func(name, value lua.LValue) { said[name.String()] = value.String() })
	return said, nil
}

func asLua(state *lua.LState, value any) lua.LValue {
	switch known := value.(type) {
	case bool:
		return lua.LBool(known)
	case float64:
		return lua.LNumber(known)
	case string:
		return lua.LString(known)
	case []any:
		list := state.NewTable()
		for _, item := range known {
			list.Append(asLua(state, item))
		}
		return list
	case map[string]any:
		table := state.NewTable()
		for name, item := range known {
			table.RawSetString(name, asLua(state, item))
		}
		return table
	}
	return lua.LNil
}
