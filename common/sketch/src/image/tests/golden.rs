//! What every machine must find alike, whatever its instruction set and the order of its bytes: images, and what the
//! sketches in them answer. (Hashes: `hash::golden`.)

use super::*;

/// Of each sample in order: of its sketches, the checksum that ends the image, and one of the answers.
#[rustfmt::skip]
const GOLDEN: &[(Kind, [(u32, u32); 4])] = &[
    (Kind::HyperLogLog, [(0x2c35_3359, 0x5c58_54ee), (0xd004_bf80, 0x93dc_c0de), (0x9f73_c00c, 0xd946_1dda), (0x1fd8_4073, 0x82ca_11ce)]),
    (Kind::CompactHyperLogLog, [(0x5f03_b4d3, 0x8ea1_4ef7), (0x5afb_1215, 0x6772_737f), (0x6560_7f83, 0xaf12_5e90), (0x5874_9732, 0xabe5_fcff)]),
    (Kind::CompactHyperLogLog, [(0xc8d1_6d5b, 0xb0b3_433b), (0x840f_b4eb, 0xafd1_c6f3), (0x1c63_cca0, 0x09cb_5eb0), (0x3d66_53e8, 0x0df0_f44b)]),
    (Kind::UltraLogLog, [(0x7094_a059, 0x437a_7ed6), (0x443a_e949, 0xede7_d0a7), (0xc244_7bec, 0xbe94_e570), (0xfca2_7c5e, 0x60dd_480f)]),
    (Kind::CountMin, [(0x204a_2f16, 0xaeaf_0a81), (0x1b09_6ee4, 0x7878_c58f), (0xccf9_a8e4, 0x104b_de7b), (0x52e3_4d1b, 0x1d79_6a27)]),
    (Kind::CountMin, [(0x70c9_2a7d, 0x831f_6832), (0x05ed_b227, 0x471d_acf7), (0xfa4d_2a37, 0xe3f5_fb54), (0x1f83_130a, 0x7958_869d)]),
    (Kind::BlockedCountMin, [(0xf68d_5359, 0xc5ef_9fca), (0x453c_6ca6, 0xef84_ad47), (0x0fa3_a7eb, 0xae37_da9b), (0xdc65_46da, 0xed0a_6a63)]),
    (Kind::HeavyLight, [(0xe8d9_4db0, 0x2ad9_aa5e), (0x69b9_88f6, 0x84d4_122b), (0xd7ed_fbb8, 0x15d7_5d61), (0x61f0_ca3b, 0x7280_1629)]),
    (Kind::HeavyLight, [(0x5748_4567, 0x8f84_fba0), (0x4c43_4bc2, 0x7aaf_a310), (0xd0f4_9c27, 0x345d_ff06), (0xcc76_3f71, 0x2b2c_add1)]),
    (Kind::CandidateBuckets, [(0xfe25_6766, 0x37be_feba), (0x9c2b_e131, 0xbd79_49c8), (0xaaa4_79d5, 0x1315_c1d9), (0xe6db_714c, 0x4937_33f7)]),
    (Kind::BlockedBloom, [(0xf164_7dff, 0x1205_cf9e), (0x8ccb_1aca, 0xa60f_6977), (0xdf00_9fdf, 0x764d_0dfd), (0xfe5f_b75f, 0x81fb_dcda)]),
    (Kind::SharedBloom, [(0xa3e9_95a1, 0x7d62_59d7), (0xfa39_4dbf, 0x8a07_4ce5), (0x6b37_c93c, 0x9684_31c8), (0xcc81_373c, 0x3c7f_ae32)]),
    (Kind::Bloom, [(0x0f48_20de, 0xb1d5_2e12), (0x9b9f_ba2b, 0x5604_9a10), (0x6e30_72e6, 0x6e08_437a), (0x2343_bf1f, 0xd21d_c45d)]),
    (Kind::CountingBloom, [(0x0e9b_474e, 0x1d7b_2f10), (0x1f23_91ec, 0x5fb6_9f96), (0xed2c_14ee, 0xec50_0bbf), (0xeb8f_c984, 0x62bb_274c)]),
    (Kind::ScalableBloom, [(0xd163_f01a, 0x4321_2b04), (0x13cf_56c8, 0x62eb_780c), (0xc709_78bd, 0x69fb_7ad1), (0xa78b_a238, 0x55f3_2e01)]),
    (Kind::Quotient, [(0x56df_ffac, 0xfa5f_f8bc), (0x69c5_1c41, 0xcd13_dd9c), (0x13d4_a919, 0xf3ec_63a7), (0xba68_3533, 0xab1e_c287)]),
    (Kind::Cuckoo, [(0xfdd8_430c, 0x6688_ef10), (0xb922_a63a, 0x8e1e_a53a), (0x518a_c490, 0x8f47_d5ab), (0x52da_827d, 0x010a_ca3d)]),
    (Kind::TwoChoice, [(0xdea3_eb8c, 0x58cf_84bc), (0x0ee8_6918, 0xc49e_2996), (0xfce5_9ea3, 0x25f3_7514), (0x5cac_eb60, 0x62be_00d9)]),
    (Kind::Spread, [(0x6848_4efa, 0x0831_f49a), (0x4871_b98a, 0xc75e_3d33), (0x3d0c_4ab7, 0x394e_e871), (0x9ef2_5e99, 0x767f_1fd9)]),
    (Kind::SampleAndHold, [(0x9ea0_050b, 0xb07c_d206), (0xf6f5_47a2, 0x69b4_af19), (0x7c84_64fd, 0x8833_09db), (0xa850_922b, 0xd12d_81c6)]),
    (Kind::SampleAndHold, [(0x4c07_ba9d, 0x0522_4525), (0x8529_4dcf, 0x8ddb_3163), (0xb920_2533, 0x8d0c_e0e9), (0x0558_954b, 0x0135_cef7)]),
    (Kind::TopK, [(0x0b8e_9f93, 0x21f1_84fb), (0xb1a2_8de8, 0xab45_91e4), (0x800b_a231, 0x28d6_cc1f), (0x0281_207a, 0xf804_503e)]),
    (Kind::TopK, [(0x36a5_1bb2, 0x4af3_b317), (0xf76e_8e37, 0x7ecd_e12f), (0xe490_6531, 0x657d_9035), (0x2670_c909, 0xed53_b8de)]),
    (Kind::Seen, [(0xb345_e078, 0x8ecf_02e4), (0x5aa1_feaa, 0xc099_0d31), (0x055c_b08f, 0xed44_5660), (0x983f_635c, 0xa3ec_66b1)]),
];

/// A sample's digests.
type Digests = (Kind, Vec<(u32, Option<u32>)>);

#[test]
fn images_and_answers_are_the_same_on_every_machine() {
    let digests = |Sample { kind, images, answers, .. }: &Sample| {
        let digests = images.iter().map(|image| {
            let checksum = image.last_chunk().copied().map(u32::from_le_bytes).unwrap();
            // (None under Miri, where they are fewer.)
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
    // Whoever changes a form or a sample finds the new table here.
    assert!(found == expected, "{found:#x?}");
}
