// How a project goes: how long tasks take, each a dot, and how many are done in a day.
import { get } from "./api.js";
import { ofProject } from "./board.jsx";
import { duration, number } from "./format.js";
import { hub, utc } from "./hub.js";
import { resets } from "./state.js";
import { Empty, Facts, Failed, Lazy, useLoad, useReloadOn } from "./ui.jsx";

const minutes = (value) => duration(value * 60000);
const row = (name, of) => [
    name,
    of?.count ? `${minutes(of.p50)} (half), ${minutes(of.p90)} (nine of ten), ${of.count} tasks` : "none yet",
];

export function Metrics({ project }) {
    const found = useLoad(
        () => Promise.all([get(hub`projects/${project}/metrics`), get(hub`projects/${project}/tasks`)]),
        [project, resets.value],
    );
    useReloadOn(found.reload, ofProject(project), [project]);
    if (found.error) return <Failed error={found.error} again={found.reload} />;
    if (!found.data) return <p class="quiet">Looking…</p>;
    const [is, tasks] = found.data;
    const done = tasks
        .filter((one) => one.started_at && one.completed_at)
        .map((one) => [
            Date.parse(utc(one.completed_at)) / 1000,
            (Date.parse(utc(one.completed_at)) - Date.parse(utc(one.started_at))) / 60000,
        ])
        .sort((a, b) => a[0] - b[0]);
    const buckets = is.throughput?.buckets ?? [];
    const most = Math.max(1, ...buckets.map((one) => one.done));
    return (
        <div class="cards scrolls">
            <section class="card">
                <h2>Times</h2>
                <Facts
                    rows={[
                        row("cycle (begun to done)", is.cycle_time_minutes),
                        row("lead (made to done)", is.lead_time_minutes),
                        row("review", is.review_time_minutes),
                        ["tasks", number(is.total_tasks)],
                        ["done", number(is.by_status?.done ?? 0)],
                    ]}
                />
            </section>
            <section class="card">
                <h2>Who finished</h2>
                {Object.keys(is.agent_throughput ?? {}).length === 0 && <Empty>Nobody yet.</Empty>}
                <Facts
                    rows={Object.entries(is.agent_throughput ?? {}).map(([who, count]) => [
                        who || "nobody",
                        number(count),
                    ])}
                />
            </section>
            <section class="card wide">
                <h2>Cycle time</h2>
                {done.length === 0 ? (
                    <Empty>Nothing is done yet.</Empty>
                ) : (
                    <Lazy
                        load={() => import("./chart.jsx")}
                        name="Chart"
                        title="From begun to done"
                        points
                        t={done.map((one) => one[0])}
                        values={done.map((one) => one[1])}
                        top={Math.max(1, ...done.map((one) => one[1]))}
                        format={minutes}
                        dots={`${done.length} tasks`}
                    />
                )}
            </section>
            <section class="card wide">
                <h2>Throughput</h2>
                <svg
                    class="bars"
                    viewBox={`0 0 ${Math.max(1, buckets.length) * 24} 90`}
                    role="img"
                    aria-label={`Done: ${buckets.map((one) => one.done).join(", ")}`}
                    preserveAspectRatio="none">
                    {buckets.map((one, i) => (
                        <rect
                            key={i}
                            x={i * 24 + 4}
                            width="16"
                            y={86 - (80 * one.done) / most}
                            height={(80 * one.done) / most + 1}>
                            <title>{`${one.done} from ${one.from}`}</title>
                        </rect>
                    ))}
                </svg>
                <p class="quiet">
                    {number(is.throughput?.total ?? 0)} done in {duration((is.throughput?.window_seconds ?? 0) * 1000)}
                    , a bar for {duration((is.throughput?.bucket_seconds ?? 0) * 1000)}
                </p>
            </section>
        </div>
    );
}
