//! Images, and results of the sketches in them, that must be the same on every machine, whatever its instruction set
//! and byte order. (`hash::golden` has the hashes.)

use super::*;

/// The samples in order. Each has, for every sketch, the checksum at the end of its image, and a checksum of the
/// results.
#[rustfmt::skip]
const GOLDEN: &[(Kind, [(u32, u32); 4])] = &[
    (Kind::HyperLogLog, [(0xa9ae_4524, 0x5c58_54ee), (0x1865_a4b8, 0x93dc_c0de), (0x25fd_8f6a, 0xd946_1dda), (0x32fb_a8b6, 0x82ca_11ce)]),
    (Kind::CompactHyperLogLog, [(0xa145_1181, 0x8ea1_4ef7), (0x964e_9eae, 0x6772_737f), (0x0925_b27c, 0xaf12_5e90), (0xc316_d6a7, 0xabe5_fcff)]),
    (Kind::CompactHyperLogLog, [(0x3697_c809, 0xb0b3_433b), (0x48ba_3850, 0xafd1_c6f3), (0xcb74_de29, 0x09cb_5eb0), (0xafa1_1ea6, 0x0df0_f44b)]),
    (Kind::UltraLogLog, [(0xf50f_d624, 0x437a_7ed6), (0x8c5b_f271, 0xede7_d0a7), (0x78ca_348a, 0xbe94_e570), (0xd181_949b, 0x60dd_480f)]),
    (Kind::CountMin, [(0x9600_9724, 0xaeaf_0a81), (0xa8b5_24d0, 0x7878_c58f), (0x8afe_38ef, 0x104b_de7b), (0x2fd6_cb6a, 0x1d79_6a27)]),
    (Kind::CountMin, [(0xb687_62a0, 0x831f_6832), (0x3f3e_7424, 0x471d_acf7), (0x36eb_4670, 0xe3f5_fb54), (0x120d_dd39, 0x7958_869d)]),
    (Kind::BlockedCountMin, [(0xda18_5c66, 0xc5ef_9fca), (0xe698_30b6, 0xef84_ad47), (0x12a7_b84c, 0xae37_da9b), (0xbf1a_a5f9, 0xed0a_6a63)]),
    (Kind::HeavyLight, [(0x0def_ccc9, 0x2ad9_aa5e), (0x76df_b711, 0x84d4_122b), (0xec5f_469e, 0x15d7_5d61), (0x67ff_04a9, 0x7280_1629)]),
    (Kind::HeavyLight, [(0xe102_fd55, 0x8f84_fba0), (0xcc7f_0607, 0x7aaf_a310), (0x3fc4_483e, 0x345d_ff06), (0x559d_0216, 0x2b2c_add1)]),
    (Kind::CandidateBuckets, [(0x398d_9ff0, 0x37be_feba), (0x5ad3_b338, 0xbd79_49c8), (0x8510_dead, 0x1315_c1d9), (0x0065_057d, 0x2985_9c2c)]),
    (Kind::BlockedBloom, [(0xdf55_eb08, 0x1205_cf9e), (0x3b30_bc32, 0xa60f_6977), (0x68fb_3927, 0x764d_0dfd), (0x49a4_11a7, 0x81fb_dcda)]),
    (Kind::SharedBloom, [(0x8dd8_0356, 0x7d62_59d7), (0x1d3b_0085, 0x8a07_4ce5), (0x74e3_4131, 0x9684_31c8), (0x8762_d812, 0x3c7f_ae32)]),
    (Kind::Bloom, [(0x38ac_5ccc, 0x6821_a353), (0x1bd9_dcb4, 0xf82e_867f), (0x1aaa_eb0d, 0x6143_d3a8), (0x1e73_3b01, 0x4772_aece)]),
    (Kind::CountingBloom, [(0x20aa_d1b9, 0x1d7b_2f10), (0x2491_2cca, 0x5fb6_9f96), (0x1c0b_8242, 0xec50_0bbf), (0x1aa8_5f28, 0x62bb_274c)]),
    (Kind::ScalableBloom, [(0x0ba1_8007, 0x4321_2b04), (0x1275_5289, 0x62eb_780c), (0x66a7_0d20, 0x69fb_7ad1), (0xebf6_f9ab, 0x55f3_2e01)]),
    (Kind::Quotient, [(0x78ee_695b, 0xfa5f_f8bc), (0xf43f_a137, 0xcd13_dd9c), (0x3e10_ad4f, 0xf3ec_63a7), (0x8870_f5bc, 0xab1e_c287)]),
    (Kind::Cuckoo, [(0xd3e9_d5fb, 0x6688_ef10), (0x2011_2446, 0x8e1e_a53a), (0x0747_ae1b, 0x8f47_d5ab), (0x14dd_1276, 0x010a_ca3d)]),
    (Kind::Spread, [(0x44dd_41c5, 0x04e1_085c), (0xc6cc_70c5, 0x2728_1220), (0xf7b6_6bd0, 0x8e3b_d7ba), (0x2a96_bf61, 0xab87_ed92)]),
    (Kind::SampleAndHold, [(0xb235_0a34, 0xb07c_d206), (0xf74f_43e3, 0x69b4_af19), (0x3fdc_76a9, 0x8833_09db), (0x2c6b_772c, 0xd12d_81c6)]),
    (Kind::SampleAndHold, [(0x6092_b5a2, 0x0522_4525), (0x8778_b4c4, 0x8ddb_3163), (0x6a6f_3af5, 0x8d0c_e0e9), (0x12d8_e917, 0x0135_cef7)]),
    (Kind::TopK, [(0xfc5c_d2d7, 0x21f1_84fb), (0x4189_bbde, 0xab45_91e4), (0x5e09_bdae, 0x28d6_cc1f), (0x1ba1_f0a5, 0x53dc_30dd)]),
    (Kind::TopK, [(0xfc24_adc8, 0x4af3_b317), (0xc905_bf1d, 0x7ecd_e12f), (0x83d1_6671, 0x657d_9035), (0x6fd2_0180, 0xc5bc_5e49)]),
    (Kind::Seen, [(0xfd13_acbd, 0x6860_611e), (0xc773_c447, 0x0490_0383), (0x7aac_3e60, 0x5b89_ca37), (0x4c3b_5ed9, 0xe573_406d)]),
];

/// The digests of a sample's images, by version.
type Digests = (Kind, Vec<(u32, Option<u32>)>);

#[test]
fn images_and_answers_are_the_same_on_every_machine() {
    let digests = |Sample { kind, images, answers, .. }: &Sample| {
        let digests = images.iter().map(|image| {
            let checksum = image.last_chunk().copied().map(u32::from_le_bytes).unwrap();
            // There are no results under Miri, where the samples are smaller.
            let answers = cfg!(not(miri)).then(|| crc32fast::hash(answers(image, PLENTY).unwrap().as_bytes()));
            (checksum, answers)
        });
        (*kind, digests.collect())
    };
    let found: Vec<Digests> = samples().iter().map(digests).collect();
    let expected: Vec<Digests> = GOLDEN
        .iter()
        .map(|(kind, digests)| {
            let digests = digests.iter().take(FILLS.len());
            (*kind, digests.map(|(image, answers)| (*image, cfg!(not(miri)).then_some(*answers))).collect())
        })
        .collect();
    // If you change a format or a sample, the failed assertion prints the new table.
    assert!(found == expected, "{found:#x?}");
}
