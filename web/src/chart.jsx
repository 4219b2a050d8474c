// A line over time. Fetched with uPlot when the first one is shown.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Chart({
    title,
    t,
    values,
    top,
    format = (value) => String(Math.round(value)),
    points = false,
    dots = null,
}) {
    const place = useRef(null),
        plot = useRef(null),
        newest = useRef(null);
    newest.current = { top, format };
    useEffect(() => {
        const axis = {
            stroke: () => colour("--quiet"),
            grid: { stroke: () => colour("--line"), width: 1 },
            ticks: { show: false },
        };
        plot.current = new uPlot(
            {
                width: place.current.clientWidth || 400,
                height: 160,
                legend: { show: false },
                cursor: { y: false },
                scales: { x: { time: true }, y: { range: () => [0, newest.current.top * 1.05] } },
                axes: [
                    axis,
                    { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => newest.current.format(tick)) },
                ],
                series: [
                    {},
                    {
                        stroke: () => colour("--accent"),
                        width: points ? 0 : 1.5,
                        points: { show: points, size: 7, fill: colour("--accent") },
                        fill: points ? undefined : () => colour("--wash"),
                    },
                ],
            },
            [t, values],
            place.current,
        );
        const watch = new ResizeObserver(([entry]) =>
            plot.current.setSize({ width: Math.max(120, Math.floor(entry.contentRect.width)), height: 160 }),
        );
        watch.observe(place.current);
        return () => {
            watch.disconnect();
            plot.current.destroy();
        };
    }, []);
    useEffect(() => {
        plot.current.setData([t, values]);
    }, [t, values]);
    const newestValue = values.length ? format(values[values.length - 1]) : "nothing";
    return (
        <figure>
            <figcaption>{title}</figcaption>
            <div ref={place} class="chart" role="img" aria-label={`${title}: ${dots ?? newestValue}`} />
        </figure>
    );
}
